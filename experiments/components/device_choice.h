#pragma once
#include <c10/core/Device.h>

#include <string>

namespace specdec {

/// Throws ConfigError for an unknown device, or one that this build or machine does not have.
at::Device parse_device(const std::string& name);

/// What a device is, such as "NVIDIA H200", for reports; "none" for the CPU, "unknown" when the
/// driver does not say.
std::string gpu_name(const at::Device& device);

}  // namespace specdec
