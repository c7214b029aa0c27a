#include "core/kernels/norm.h"
