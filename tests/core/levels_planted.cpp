#include <vector>

// What levels_test.sh is there to find: a file of core/cpu whose std::vector leaves its growth
// behind as weak functions.
namespace triax::host::baseline {

std::vector<int> planted(int n);
std::vector<int> planted(int n) {
  std::vector<int> v;
  v.push_back(n);
  return v;
}

}  // namespace triax::host::baseline
