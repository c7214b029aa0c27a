#include "core/gemma/gemma.h"
