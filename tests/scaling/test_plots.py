import pytest

from scalerl_mini.errors import UserError
from scalerl_mini.scaling import Curve, compare, fit
from scalerl_mini.scaling.compare_plots import plot_comparison
from scalerl_mini.scaling.plots import compact, log_compute, new_figure
from tests.scaling.synthetic import noisy_curve


@pytest.mark.parametrize(("ending", "magic"), [(".png", b"\x89PNG"), (".svg", b"<?xml")])
def test_a_fit_is_drawn(tmp_path, ending, magic):
    path = fit(noisy_curve(1)).plot(tmp_path / f"fit{ending}")
    assert path.read_bytes().startswith(magic)


def test_a_refused_curve_is_drawn_too(tmp_path):
    assert fit(Curve.of([1, 2], [0.1, 0.2])).plot(tmp_path / "x.png").exists()


def test_comparisons_are_drawn_with_and_without_a_common_ceiling(tmp_path):
    same = compare({"a": [fit(noisy_curve(1))], "b": [fit(noisy_curve(2))]})
    apart = compare({"a": [fit(noisy_curve(1, ratio=6.0))], "b": [fit(noisy_curve(2, a=0.5, ratio=6.0))]})
    for i, comparison in enumerate((same, apart)):
        assert plot_comparison(comparison, tmp_path / f"{i}.svg").stat().st_size > 5000


@pytest.mark.parametrize(("value", "text"), [(0.5, "0.5"), (20.0, "20"), (5000.0, "5k"), (2e20, "2e20")])
def test_ticks_are_short(value, text):
    assert compact(value) == text


def test_an_axis_of_one_decade_has_more_than_one_label():
    figure, axes = new_figure()
    axes.plot([1300.0, 13000.0], [0.3, 0.6])
    log_compute(axes, "compute")
    figure.canvas.draw()
    assert {"2k", "5k", "10k"} <= {t.get_text() for t in axes.get_xticklabels()}


def test_unknown_ending_and_unwritable_place(tmp_path):
    with pytest.raises(UserError, match=r"\.png"):
        fit(noisy_curve(1)).plot(tmp_path / "fit.gif")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        fit(noisy_curve(1)).plot(tmp_path / "file" / "fit.png")
