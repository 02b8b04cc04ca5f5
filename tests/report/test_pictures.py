"""Pictures: what is drawn, that it can be read, and that files are treated with care."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from eigenpact.errors import FileError
from eigenpact.report import pictures


@pytest.fixture
def overview() -> Figure:
    rng = np.random.default_rng(0)
    return pictures.components_and_scores(
        components=rng.normal(size=(10, 64)),
        image_shape=(8, 8),
        scores={f"site{i}": rng.normal(size=(20, 2)) for i in range(10)},
        shares=[0.1] * 10,
        convergence={f"solver {i}": ([1, 2, 3, 40], [1e-1, 1e-5, 1e-9, 0.0]) for i in range(12)},
        title="Ten sites",
    )


def extent(figure: Figure, artist):
    return artist.get_window_extent(FigureCanvasAgg(figure).get_renderer())


def test_overview_shows_everything(overview):
    *images, scores, convergence = overview.axes
    assert len(images) == 10
    assert [ax.get_title().split("\n")[0] for ax in images] == [f"PC{j}" for j in range(1, 11)]
    assert all(ax.images[0].get_array().shape == (8, 8) for ax in images)
    limits = [ax.images[0].get_clim() for ax in images]
    assert all(low == -high for low, high in limits)  # zero is white
    assert len(scores.collections) == 10
    assert len({(tuple(c.get_facecolor()[0]), c.get_paths()[0].vertices.tobytes()) for c in scores.collections}) == 10
    assert [text.get_text() for text in scores.get_legend().get_texts()] == [f"site{i}" for i in range(10)]
    assert scores.get_xlabel() == "score on PC1 (10.0 % of the variance)"
    assert len(convergence.lines) == 12
    assert convergence.get_yscale() == "log"
    assert convergence.lines[0].get_ydata()[-1] == pictures.SMALLEST_KKT


def test_overview_has_no_overlapping_text(overview):
    overview.draw_without_rendering()
    *images, scores, convergence = overview.axes
    titles = [extent(overview, ax.title) for ax in images]
    assert not any(a.overlaps(b) for i, a in enumerate(titles) for b in titles[:i])
    heading = extent(overview, overview.subfigs[0]._suptitle)
    assert not any(heading.overlaps(title) and heading.y0 < title.y0 for title in titles)
    for ax in (scores, convergence):
        assert not extent(overview, ax.get_legend()).overlaps(extent(overview, ax.patch))
    inside = overview.bbox
    for ax in (scores, convergence):
        box = extent(overview, ax.get_legend())
        assert inside.x0 <= box.x0
        assert box.x1 <= inside.x1
        assert inside.y0 <= box.y0


def test_scree_shows_variances_and_largest_loadings():
    components = np.eye(12)[:6]
    components[0, :3] = [0.6, -0.8, 0.0]
    figure = pictures.scree(components, [0.4, 0.3, 0.1, 0.05, 0.03, 0.02], [f"f{j}" for j in range(12)], "Two sites")
    variance, *loadings = figure.axes
    assert [bar.get_height() for bar in variance.patches] == pytest.approx([40, 30, 10, 5, 3, 2])
    assert variance.lines[0].get_ydata() == pytest.approx([40, 70, 80, 85, 88, 90])
    assert [ax.get_title() for ax in loadings] == ["PC1", "PC2", "PC3", "PC4"]
    labels = [tick.get_text() for tick in loadings[0].get_yticklabels()]
    assert (labels[-1], labels[-2], len(labels)) == ("f1", "f0", 8)
    assert [bar.get_width() for bar in loadings[0].patches][-2:] == pytest.approx([0.6, -0.8])


def test_scree_takes_any_names_and_one_component(tmp_path: Path):
    names = ["cost $x$ \\frac{", "a very long name that would not fit anywhere"]
    figure = pictures.scree(np.array([[0.8, 0.6]]), [1.0], names, "$\\bad{")
    pictures.save_picture(figure, tmp_path / "scree.png")
    labels = [tick.get_text() for tick in figure.axes[1].get_yticklabels()]
    assert labels == ["a very long nam…", "cost $x$ \\frac{"]
    numbered = pictures.scree(np.array([[0.8, 0.6]]), [1.0], None, "no names")
    assert [tick.get_text() for tick in numbered.axes[1].get_yticklabels()] == ["feature 1", "feature 0"]


def test_failed_save_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(part: Path) -> None:
        Path(part).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    figure = pictures.scree(np.eye(2), [0.6, 0.4], None, "t")
    monkeypatch.setattr(figure, "savefig", fail)
    with pytest.raises(FileError, match="No space left on device"):
        pictures.save_picture(figure, tmp_path / "p.png")
    assert list(tmp_path.iterdir()) == []


def test_scores_have_their_labels_colours():
    points = np.random.default_rng(0).normal(size=(30, 2))
    (ax,) = pictures.scores(points, [0.5, 0.2], ["b", "a", "b"] * 10).axes
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["b", "a"]
    np.testing.assert_array_equal(ax.collections[1].get_offsets(), points[1::3])
    assert pictures.scores(points, [0.5, 0.2]).axes[0].get_legend() is None
