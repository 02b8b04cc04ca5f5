"""Plots of fitted estimators.  Each function gives matplotlib axes, and draws on ``ax`` if that is given.

- ``scree(pca)``, ``loadings(pca, component)``: what the components are.
- ``scores(pca, X)``, ``biplot(pca, X)``: rows that are here, by site.
- ``convergence(pca)``, ``traffic(pca)``: how it was found, and what left the sites.
- ``parts(model)``: shared and particular variance of a ``PersonalizedPCA``.

Colours can be told apart with any colour vision, and sites have markers of their own, too.
"""

from .report.plots import biplot, convergence, loadings, parts, scores, scree, traffic

__all__ = ["biplot", "convergence", "loadings", "parts", "scores", "scree", "traffic"]
