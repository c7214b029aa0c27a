#include "kv/kv_cache.h"
