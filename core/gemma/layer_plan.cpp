#include "core/gemma/layer_plan.h"
