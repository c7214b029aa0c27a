#include "core/kernels/geglu.h"
