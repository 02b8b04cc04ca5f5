"""How the reproductions draw: what is below zero stays there, bars are told apart, figures say where they come from."""

from __future__ import annotations

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from eigenpact.reproduce import CITED, PAPERS, drawing
from eigenpact.reproduce.drawing import Panel, bars, panels, sign


@pytest.mark.parametrize(("logarithmic", "lowest"), [(False, -3.0), (True, drawing.SMALLEST)])
def test_numbers_below_zero_are_cut_on_logarithmic_axes_only(logarithmic: bool, lowest: float) -> None:
    figure = panels("t", [[Panel("", "x", "y", {"perpca": ([1, 2], [1.0, -3.0])}, log_y=logarithmic)]])
    assert min(figure.axes[0].lines[0].get_ydata()) == lowest


def test_bars_of_one_solver_are_told_apart() -> None:
    ours = {"shrinking (ours)": [1e-13], "dcf": [1e-2], "dcf, step as printed": [3e-2]}
    figure = bars("t", "error", ["n = 60"], ours, {})
    looks = {(bar.get_facecolor(), bar.get_hatch()) for bar in figure.axes[0].patches}
    assert len(looks) == 3


def test_the_footer_is_below_everything() -> None:
    curves = {f"a method with quite a long name, number {i}": ([1, 2, 3], [1.0, 0.5, 0.1 * i + 0.1]) for i in range(7)}
    figure = panels("t", [[Panel("", "rounds", "y", curves)] * 2])
    sign(figure, "after somebody; size small, seed 0")
    figure.draw_without_rendering()
    renderer = FigureCanvasAgg(figure).get_renderer()
    (footer,) = [text for text in figure.texts if text.get_text().startswith("after")]
    box = footer.get_window_extent(renderer)
    legend = figure.legends[0].get_window_extent(renderer)
    assert not box.overlaps(legend)
    assert not any(legend.overlaps(ax.get_tightbbox(renderer)) for ax in figure.axes)
    assert figure.bbox.x0 <= legend.x0 < legend.x1 <= figure.bbox.x1
    assert box.y0 >= figure.bbox.y0


def test_every_paper_is_named() -> None:
    assert set(CITED) == set(PAPERS)
