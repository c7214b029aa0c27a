#include "core/gemma/weights.h"
