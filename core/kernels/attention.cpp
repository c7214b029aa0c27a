#include "core/kernels/attention.h"
