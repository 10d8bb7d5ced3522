#pragma once

namespace triax {

/// Returns the version of this library: "0.2.0".
const char* version();

/// Returns the commit that it was built from, 12 digits, with "-dirty" behind it if files had
/// changed; empty if it was built outside of its repository.
const char* commit();

}  // namespace triax
