#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace triax {

/// What a rank spends a stretch of its time on. All but the last two are its own work.
enum class Activity : uint8_t { work, action, layer, optimizer, data, communication, waiting };
inline constexpr size_t activities = 7;
const char* name(Activity what);

/// What one rank (one thread) did when: slices of its time, nested, and its operations with other
/// ranks, from the call until the rank saw the end. Times are nanoseconds of now().
class Profile {
 public:
  struct Slice {
    std::string name;
    Activity what;
    int64_t begin, end;
  };
  struct Operation {
    std::string name, call, group;
    int64_t bytes = 0;  ///< of the larger tensor
    int64_t begin = 0, end = 0;
  };

  Profile() = default;
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  /// Of the monotonic clock, which all processes of a host share.
  static int64_t now();

  /// Begins a slice inside of those that are open. `name` of a layer outlives the graph of its ops.
  void open(const char* name, Activity what);
  /// Ends the innermost one; a `name` given here replaces the first. A layer that goes on after an
  /// interruption is one slice.
  void close(std::string name = {});
  /// Returns the number that finish() takes.
  size_t start(Operation operation);
  void finish(size_t operation);

  /// Those that are closed, in the order of their ends.
  const std::vector<Slice>& slices() const { return slices_; }
  const std::vector<Operation>& operations() const { return operations_; }
  /// Nanoseconds by Activity, each counted in the innermost slice alone.
  const std::array<int64_t, activities>& spent() const { return spent_; }
  /// The innermost open slice, if that is a layer: the name it was given; else null.
  const char* layer() const;

 private:
  struct Frame {
    std::string name;
    const char* given;
    Activity what;
    int64_t begin, inside = 0;       // nanoseconds of the slices within
    size_t last_layer = size_t(-1);  // the newest slice within that is a layer
  };
  std::vector<Frame> open_;
  std::vector<Slice> slices_;
  std::vector<Operation> operations_;
  std::array<int64_t, activities> spent_{};
};

/// The profile of the calling rank, null if none is made. A rank is a thread, so this is per
/// thread.
Profile* profile();
/// From now on this thread's slices and operations go there; null: nowhere. `p` outlives its use.
void set_profile(Profile* p);
/// Profile::layer() of this thread's profile; null without one.
const char* profiled_layer();

/// A stretch of the host's time with a name: a slice of the rank's profile, and a range in
/// profilers of GPUs (Nsight Systems: NVTX). Costs next to nothing when none is looking.
class ProfileRange {
 public:
  explicit ProfileRange(const char* name, Activity what = Activity::work);
  /// A rule in backward. In a profile it belongs to the layer that recorded it; null: to none.
  ProfileRange(const char* op, const char* layer);
  ~ProfileRange();
  ProfileRange(const ProfileRange&) = delete;
  ProfileRange& operator=(const ProfileRange&) = delete;

 private:
  Profile* profile_;
};

}  // namespace triax
