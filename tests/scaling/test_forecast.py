import pytest

from scalerl_mini.errors import UserError
from scalerl_mini.scaling import Curve, fit, forecast, gain_below, one_line
from scalerl_mini.scaling.report import report
from scalerl_mini.scaling.sensitivity import all_flags, cut_table, form_table
from tests.scaling.synthetic import noisy, noisy_curve


@pytest.fixture(scope="module")
def young():
    return fit(noisy_curve(1, ratio=1.5, sigma=0.003, n=60))


@pytest.fixture(scope="module")
def done():
    return fit(noisy_curve(1, ratio=8.0, sigma=0.003, n=60))


def test_a_young_run_is_a_go_and_a_finished_one_a_no(young, done):
    assert [row.decision for row in forecast(young, [4 * young.last], worth=0.02)] == ["GO"]
    assert [row.decision for row in forecast(done, [2 * done.last], worth=0.02)] == ["NO"]
    assert forecast(young, [4 * young.last])[0].decision is None


def test_in_between_is_undecided(young):
    gain = young.gain(4 * young.last)[0]
    assert forecast(young, [4 * young.last], worth=gain)[0].decision == "UNDECIDED"


def test_stop_rule_only_stops_when_sure(young, done):
    assert gain_below(done, 2 * done.last, 0.02)
    assert not gain_below(young, 4 * young.last, 0.02)
    assert not gain_below(young, 0.5 * young.last, 0.02)
    assert not gain_below(fit(Curve.of([1, 2], [0.1, 0.2])), 10.0, 0.02)


def test_marginal_gain_is_the_slope_of_the_curve(young):
    row = forecast(young, [2 * young.last])[0]
    step = 1.0
    assert row.per_compute == pytest.approx(
        (young.value(row.compute + step) - young.value(row.compute)) / step, rel=1e-2
    )
    assert row.gain[0] <= row.gain_value <= row.gain[1]


@pytest.mark.parametrize(
    "bad", [{"worth": float("nan")}, {"worth": 2.0}, {"computes": [float("inf")]}, {"computes": [0.0]}]
)
def test_impossible_questions_are_refused(done, bad):
    with pytest.raises(UserError):
        forecast(done, **bad)


def test_a_fit_without_intervals_decides_nothing():
    assert "UNDECIDED: power" in report(fit(noisy_curve(1), law="power"), worth=0.02)


def test_one_line(young, done):
    assert one_line(done).startswith("A 0.6")
    assert "identified" in one_line(done)
    assert ", at 2x compute R 0." in one_line(done)
    assert one_line(fit(Curve.of([1], [0.1]))).startswith("fit: too_few_points")
    assert "\n" not in one_line(young)


def test_report_of_an_unidentified_ceiling_prints_no_value():
    result = fit(noisy_curve(3, ratio=0.5, sigma=0.01))
    text = report(result, worth=0.02)
    assert "A = not identified" in text
    assert "A: not identified" in text
    assert "if other saturating laws are allowed" in text
    assert "single_run" in text


def test_report_of_a_refused_curve_says_why():
    assert "too_few_points" in report(fit(Curve.of([1, 2], [0.1, 0.2])))


def test_a_transient_is_seen_in_the_cut_table():
    compute, score = noisy(4, n=60, ratio=3.0, sigma=0.002)
    bent = score - 0.15 * 2.718 ** (-compute / (0.05 * compute[-1]))
    result = fit(Curve.of(compute, bent), cutoff=0.0)
    table = dict(cut_table(result))
    assert abs(table[0.2] - 0.6) < abs(table[0.0] - 0.6)
    assert "cut_sensitive" in all_flags(result)
    assert "cut_sensitive" not in all_flags(fit(Curve.of(compute, score)))


def test_form_table_rules_the_power_law_out_on_a_bend(young):
    rows = {name: (a, delta) for name, a, delta in form_table(young)}
    assert set(rows) == {"sigmoid", "gompertz", "stretched", "power"}
    assert rows["sigmoid"][1] == 0.0
    assert rows["power"][1] > 2.0
