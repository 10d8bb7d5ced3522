#pragma once

namespace triax {

/// A stretch of the host's time with a name, which profilers of GPUs show (Nsight Systems: NVTX
/// ranges). Costs next to nothing when none is looking, and nothing in a build without CUDA.
class ProfileRange {
 public:
  explicit ProfileRange(const char* name);
  ~ProfileRange();
  ProfileRange(const ProfileRange&) = delete;
  ProfileRange& operator=(const ProfileRange&) = delete;
};

}  // namespace triax
