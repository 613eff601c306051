// Pages of columns: arrays of equal length and item size, one after the other.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <utility>
#include <vector>

namespace headgate::base {

// A view of the bytes of a Python object, valid as long as this lives.
class Bytes {
public:
    Bytes(PyObject* object, int flags) {
        if (PyObject_GetBuffer(object, &buffer_, flags) != 0) throw nanobind::python_error();
    }
    Bytes(const Bytes&) = delete;
    Bytes(Bytes&& other) noexcept : buffer_(other.buffer_) { other.buffer_.obj = nullptr; }
    Bytes& operator=(const Bytes&) = delete;
    Bytes& operator=(Bytes&&) = delete;
    ~Bytes() { PyBuffer_Release(&buffer_); }

    char* data() const { return static_cast<char*>(buffer_.buf); }
    std::size_t size() const { return static_cast<std::size_t>(buffer_.len); }

private:
    Py_buffer buffer_;
};

// The pages of a column; a page must be opened before it is read.
class Pages {
public:
    explicit Pages(nanobind::tuple pages)
        : pages_(std::move(pages)), data_(nanobind::len(pages_), nullptr) {}

    PyObject* object(std::size_t page) const { return pages_[page].ptr(); }

    // By page; null for one that was never opened.
    const char* const* data() const { return data_.data(); }

    void open(std::size_t page) {
        if (data_[page] != nullptr) return;
        opened_.emplace_back(object(page), PyBUF_SIMPLE);
        data_[page] = opened_.back().data();
    }

private:
    nanobind::tuple pages_;
    std::vector<const char*> data_;
    std::vector<Bytes> opened_;
};

}  // namespace headgate::base
