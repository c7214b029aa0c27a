#include "core/language_model.h"
