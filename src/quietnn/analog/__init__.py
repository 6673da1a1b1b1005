"""Networks on analog hardware: converters and their noise, weights read out of aihwkit, repairs as devices age."""

from quietnn.analog.converter import PRESETS as PRESETS
from quietnn.analog.converter import Converter as Converter
from quietnn.analog.equivalent import with_converter_noise as with_converter_noise
from quietnn.analog.hardware import on_hardware as on_hardware
from quietnn.analog.over_time import RepairsOverTime as RepairsOverTime
from quietnn.analog.over_time import repair_over_time as repair_over_time
from quietnn.analog.ranges import calibrate_ranges as calibrate_ranges
from quietnn.analog.readout import read_out as read_out
from quietnn.analog.readouts import from_readouts as from_readouts
from quietnn.analog.writing import write_back as write_back
