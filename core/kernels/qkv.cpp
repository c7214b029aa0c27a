#include "core/kernels/qkv.h"
