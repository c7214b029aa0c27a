#include "core/randomness.h"
