#include "core/sampling.h"
