#include "columns.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "pages.hpp"

namespace nb = nanobind;

namespace headgate::base {
namespace {

// Calls `act` with an integer of this many bytes.
template <class Act>
void with_item(std::size_t bytes, Act act) {
    switch (bytes) {
        case 1: return act(std::uint8_t{});
        case 4: return act(std::uint32_t{});
        case 8: return act(std::uint64_t{});
        default: throw nb::value_error("items are of 1, 4 or 8 bytes");
    }
}

// The item in a row; its page must be open.
template <class Item>
Item item_of(const char* const* data, std::int64_t row, int shift) {
    const std::int64_t within = (std::int64_t{1} << shift) - 1;
    return reinterpret_cast<const Item*>(data[row >> shift])[row & within];
}

template <class Item>
void gather(const char* const* data, const Ints& rows, int shift, char* out) {
    const std::int64_t* row = rows.data();
    auto* taken = reinterpret_cast<Item*>(out);
    for (std::size_t i = 0, count = rows.size(); i < count; ++i) {
        taken[i] = item_of<Item>(data, row[i], shift);
    }
}

void check_row(std::int64_t row, std::int64_t length) {
    if (row < 0 || row >= length) throw nb::index_error("a row is not of this column");
}

template <class Item>
void compare(const char* one, const char* other, std::size_t items, std::int64_t first,
             std::vector<std::int64_t>& differ) {
    const auto* a = reinterpret_cast<const Item*>(one);
    const auto* b = reinterpret_cast<const Item*>(other);
    for (std::size_t i = 0; i < items; ++i) {
        if (a[i] != b[i]) differ.push_back(first + static_cast<std::int64_t>(i));
    }
}

}  // namespace

void take(nb::tuple pages, const Ints& rows, std::int64_t length, int shift, nb::handle taken) {
    const Bytes out(taken.ptr(), PyBUF_WRITABLE);
    Pages read(std::move(pages));
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const std::int64_t row = rows.data()[i];
        check_row(row, length);
        read.open(static_cast<std::size_t>(row >> shift));
    }
    if (rows.size() == 0) return;
    with_item(out.size() / rows.size(), [&](auto item) {
        gather<decltype(item)>(read.data(), rows, shift, out.data());
    });
}

NumPyInts differing(nb::tuple pages, nb::tuple others, std::int64_t length, int shift,
                    std::size_t item_bytes) {
    Pages here(std::move(pages)), there(std::move(others));
    std::vector<std::int64_t> differ;
    for (std::size_t page = 0; static_cast<std::int64_t>(page) << shift < length; ++page) {
        if (here.object(page) == there.object(page)) continue;
        const std::int64_t first = static_cast<std::int64_t>(page) << shift;
        const auto items = static_cast<std::size_t>(
            std::min(std::int64_t{1} << shift, length - first));
        here.open(page);
        there.open(page);
        const char *one = here.data()[page], *other = there.data()[page];
        with_item(item_bytes, [&](auto item) {
            compare<decltype(item)>(one, other, items, first, differ);
        });
    }
    return numpy(std::move(differ));
}

nb::tuple lists(nb::tuple first, nb::tuple count, std::int64_t length, nb::tuple numbers,
                std::int64_t held, const Ints& rows, int shift) {
    Pages firsts(std::move(first)), counts(std::move(count)), read(std::move(numbers));
    std::vector<std::int64_t> begin(rows.size()), offsets(rows.size() + 1);
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const std::int64_t row = rows.data()[i];
        check_row(row, length);
        firsts.open(static_cast<std::size_t>(row >> shift));
        counts.open(static_cast<std::size_t>(row >> shift));
        begin[i] = item_of<std::int64_t>(firsts.data(), row, shift);
        const std::int64_t many = item_of<std::int32_t>(counts.data(), row, shift);
        if (begin[i] < 0 || many < 0 || many > held - begin[i]) {
            throw nb::index_error("a list is not of this column");
        }
        offsets[i + 1] = offsets[i] + many;
    }
    std::vector<std::int64_t> found(static_cast<std::size_t>(offsets.back()));
    auto next = found.begin();
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const std::int64_t end = begin[i] + offsets[i + 1] - offsets[i];
        for (std::int64_t at = begin[i]; at < end; ++at) {
            read.open(static_cast<std::size_t>(at >> shift));
            *next++ = item_of<std::int32_t>(read.data(), at, shift);
        }
    }
    return nb::make_tuple(numpy(std::move(offsets)), numpy(std::move(found)));
}

}  // namespace headgate::base
