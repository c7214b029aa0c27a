#include "core/gemma/config.h"
