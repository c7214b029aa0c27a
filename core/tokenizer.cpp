#include "core/tokenizer.h"
