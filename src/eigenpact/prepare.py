"""What sites agree on and do to their rows before components are sought: ``FederatedPCA(prepare=[prepare.Scale(), ...])``.

- ``LogNormalize(target_sum)``: counts of each row in a common unit, then log(1 + x).
- ``HighlyVariable(n_top)``: the columns that vary most for their mean.
- ``Scale(by)``: columns by means and standard deviations, or by medians.
- ``GenotypeScale(by)``: genotypes by the share of the allele, missing ones at the mean.
- ``Residualize(columns)``: columns such as age and sex regressed out of the others.
- ``BatchAdjust()``: location and scale of each site's features moved to the common ones, as ComBat does.

They are done in the order in which they are given.  ``functions(preparers)`` names the local functions that they need, for the
policies of sites; ``parse(text)`` reads a preparer as the command line writes it.

>>> from eigenpact import prepare
>>> prepare.parse("hvg:500") == prepare.HighlyVariable(500)
True
>>> prepare.functions([prepare.LogNormalize()])[:2]
('eigenpact:count_totals/1', 'eigenpact:keep_target/1')
"""

from .algorithms.prepare.batch_adjust import BatchAdjust
from .algorithms.prepare.genotypes import GenotypeScale
from .algorithms.prepare.highly_variable import HighlyVariable
from .algorithms.prepare.log_normalize import LogNormalize
from .algorithms.prepare.residualize import Residualize
from .algorithms.prepare.scale import Scale
from .estimators.plans import functions_to_prepare as functions
from .estimators.preparers import parse_preparer as parse

__all__ = ["BatchAdjust", "GenotypeScale", "HighlyVariable", "LogNormalize", "Residualize", "Scale", "functions", "parse"]
