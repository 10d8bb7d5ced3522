#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "triax/core/scoped.h"

namespace triax {

/// The activity that a rank spends a stretch of its time on. All but the last two are its own work.
enum class Activity : uint8_t { work, action, layer, optimizer, data, communication, waiting };
inline constexpr size_t activities = 7;
const char* name(Activity what);

/// The clock of a profile. A device does later what the host queues now: it says when it came to a
/// mark only afterwards.
class ProfileClock {
 public:
  virtual ~ProfileClock();
  virtual int64_t mark() = 0;
  /// Returns when `mark` was reached, in nanoseconds of Profile::now(). May wait for that.
  virtual int64_t time(int64_t mark) = 0;
};

/// The timeline of one rank (one thread): slices of its time, nested, and its operations with other
/// ranks, from the call until the rank saw the end. Times are marks of the clock until settle(),
/// then nanoseconds of now().
class Profile : Immovable {
 public:
  struct Slice {
    std::string name;
    Activity what;
    int64_t begin, end;
  };
  struct Operation {
    std::string name, call, group;
    int64_t bytes = 0;  ///< of the larger tensor
    int64_t begin = 0, end = not_seen;
  };
  static constexpr int64_t not_seen = -1;

  /// Starts a profile timed by `clock`; null: the host's, whose marks are times.
  explicit Profile(std::unique_ptr<ProfileClock> clock = nullptr);
  ~Profile();

  /// Returns the monotonic clock's time in nanoseconds; all processes of a host share it.
  static int64_t now();

  /// Begins a slice inside of those that are open. A layer's `name` outlives the graph of its ops.
  void open(const char* name, Activity what);
  /// Ends the innermost one; a `name` given here replaces the first. A layer that goes on after an
  /// interruption is one slice.
  void close(std::string name = {});
  /// Returns the number that finish() takes.
  size_t start(Operation operation);
  void finish(size_t operation);
  /// Ends the recording: reads the clock. An operation whose end was not seen ends where it began.
  void settle();

  /// Returns the closed slices, in the order of their ends.
  const std::vector<Slice>& slices() const { return slices_; }
  const std::vector<Operation>& operations() const { return operations_; }
  /// Returns nanoseconds by Activity, each counted in the innermost slice alone, within the
  /// outermost slices that are closed; known when settled.
  const std::array<int64_t, activities>& spent() const { return spent_; }
  /// Returns the name of the innermost open slice if that is a layer, else null.
  const char* layer() const;

 private:
  struct Frame {
    std::string name;
    const char* given;
    Activity what;
    int64_t begin;
    size_t last_layer = size_t(-1);  // the newest slice within that is a layer
  };
  struct Stretch {
    Activity what;
    std::optional<Activity> around;
    int64_t begin, end;
  };
  std::unique_ptr<ProfileClock> clock_;
  std::vector<Frame> open_;
  std::vector<Stretch> closed_;  // also those that are one slice with an earlier one
  size_t whole_ = 0;             // how many of them are in outermost slices that are closed
  std::vector<Slice> slices_;
  std::vector<Operation> operations_;
  std::array<int64_t, activities> spent_{};
};

/// Returns the profile of the calling rank, null if none is made. A rank is a thread, so this is
/// per thread.
Profile* profile();
/// Sends this thread's slices and operations to `p`, which outlives its use; null: nowhere.
void set_profile(Profile* p);
/// Returns Profile::layer() of this thread's profile; null without one.
const char* profiled_layer();

/// A named stretch of the host's time: a slice of the rank's profile, and a range in GPU profilers
/// (Nsight Systems: NVTX). Costs next to nothing when none is looking.
class ProfileRange : Immovable {
 public:
  explicit ProfileRange(const char* name, Activity what = Activity::work);
  /// Begins a rule in backward, which a profile gives to the layer that recorded it; null: to none.
  ProfileRange(const char* op, const char* layer);
  ~ProfileRange();

 private:
  Profile* profile_;
};

}  // namespace triax
