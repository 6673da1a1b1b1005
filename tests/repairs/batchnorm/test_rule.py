"""The table of a calibration."""

from quietnn.repairs.batchnorm.rule import CalibratedLayer, CalibrationReport


def test_nothing_has_no_minus_in_front() -> None:
    layer = CalibratedLayer("bn", "conv", 0.25, -0.0, -1e-17, 1.0, 0.5)
    line = str(CalibrationReport((layer,)))
    assert "-0%" not in line
    assert "own noise  25%  earlier noise   0%" in line
