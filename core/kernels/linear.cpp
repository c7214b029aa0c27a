#include "core/kernels/linear.h"
