#include "decoders/cost_curve.h"
