#include "core/gemma/reference.h"
