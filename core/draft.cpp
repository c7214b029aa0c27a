#include "core/draft.h"
