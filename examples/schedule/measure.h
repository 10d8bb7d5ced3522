#pragma once
#include <nlohmann/json.hpp>

namespace triax::schedule {

/// A stack of linear layers trained for one step of AdamW on `ranks` threads, with ZeRO 0 to 3:
/// `stages`, of which each has the bytes a rank holds between two steps (`weights`, `gradients`,
/// `optimizer`) and the bytes it sends in one (`sent`, as parallel/comm/call.h counts).
nlohmann::ordered_json measure_zero(int ranks);

/// The collectives that ColumnLinear and RowLinear call on `ranks` threads, in `forward` and
/// `backward`, for tensor and for sequence parallelism. Throws Error 78 unless `ranks` divide 4.
nlohmann::ordered_json measure_tensor(int ranks);

}  // namespace triax::schedule
