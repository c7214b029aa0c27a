// The functions of {fmt}, and those instances of its templates that its headers only declare: other
// sources need not compile them. LibTorch comes with {fmt}'s headers and without its library.
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE
namespace detail {

template auto thousands_sep_impl<char>(locale_ref) -> thousands_sep_result<char>;
template auto decimal_point_impl<char>(locale_ref) -> char;

namespace dragonbox {
template auto to_decimal<float>(float) noexcept -> decimal_fp<float>;
template auto to_decimal<double>(double) noexcept -> decimal_fp<double>;
}  // namespace dragonbox

}  // namespace detail
FMT_END_NAMESPACE
