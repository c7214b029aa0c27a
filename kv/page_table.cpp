#include "kv/page_table.h"
