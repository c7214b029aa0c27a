#pragma once
// The precompiled header of what computes with LibTorch.
#include <ATen/ATen.h>

#include "core/precompiled.h"
