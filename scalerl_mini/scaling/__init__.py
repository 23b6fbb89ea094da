"""The compute law: curve in, fit, intervals, forecast, comparison, plots. Imports nothing of the training side, no torch."""

from scalerl_mini.scaling.batch import fit_batch
from scalerl_mini.scaling.compare import compare
from scalerl_mini.scaling.curve import Curve
from scalerl_mini.scaling.fit import fit
from scalerl_mini.scaling.forecast import forecast, gain_below, one_line
from scalerl_mini.scaling.reading import read_curve
from scalerl_mini.scaling.result import Fit

__all__ = ["Curve", "Fit", "compare", "fit", "fit_batch", "forecast", "gain_below", "one_line", "read_curve"]
