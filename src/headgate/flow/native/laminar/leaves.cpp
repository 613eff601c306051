#include "leaves.hpp"

#include <algorithm>
#include <bit>
#include <cassert>

namespace headgate::flow::laminar {

Leaves::Leaves(Zones& zones) : zones_(zones) {
    load_.resize(zones.forest.size());
    guests_.resize(zones.forest.size());
    room_.resize(zones.forest.size() / 64 + 1);
}

void Leaves::update() {
    leaf_.resize(std::max<std::size_t>(leaf_.size(), zones_.units.size()), kNowhere);
    const Place sink = zones_.forest.sink();
    auto moved = std::move(zones_.moved);
    zones_.moved.clear();
    has_moved_.resize(leaf_.size());
    for (const Unit t : moved) {
        zones_.has_moved[t] = false;
        note_move(t);
        if (leaf_[t] != kNowhere) unseat(t);
    }
    for (const Unit t : moved) {
        const Place at = zones_.units[t].at;
        if (at == kNowhere || at == sink) continue;
        if (zones_.forest.is_leaf(at)) {
            seat(t, at);
            changed_.push_back(at);
        } else {
            waiting_.push_back(t);
        }
    }
    for (const Place leaf : changed_) rebalance(leaf);
    changed_.clear();
    // From below, so that few guests are displaced; a place's number is larger than its parent's.
    std::sort(waiting_.begin(), waiting_.end(), [&](Unit a, Unit b) {
        const auto& units = zones_.units;
        return units[a].at != units[b].at ? units[a].at > units[b].at : a < b;
    });
    for (std::size_t i = 0; i < waiting_.size(); ++i) seat_guest(waiting_[i]);
    waiting_.clear();
    zones_.moved = std::move(moved);
    zones_.moved.clear();
}

void Leaves::seat(Unit t, Place leaf) {
    leaf_[t] = leaf;
    ++load_[leaf];
    if (is_guest(t)) guests_[leaf].push_back(t);
    mark(leaf);
}

void Leaves::unseat(Unit t) {
    const Place leaf = leaf_[t];
    auto& guests = guests_[leaf];
    if (const auto found = std::find(guests.begin(), guests.end(), t); found != guests.end()) {
        *found = guests.back();
        guests.pop_back();
    }
    leaf_[t] = kNowhere;
    --load_[leaf];
    mark(leaf);
    note_move(t);
}

void Leaves::note_move(Unit t) {
    if (has_moved_[t]) return;
    has_moved_[t] = true;
    moved_.push_back(t);
}

std::vector<std::int64_t> Leaves::moved() {
    std::vector<std::int64_t> moved;
    for (const Unit t : moved_) {
        has_moved_[t] = false;
        if (zones_.units[t].alive) moved.push_back(t);
    }
    moved_.clear();
    return moved;
}

// Displaces guests while the leaf holds more units than its capacity.
void Leaves::rebalance(Place leaf) {
    while (load_[leaf] > zones_.capacity(leaf) && !guests_[leaf].empty()) {
        const Unit guest = guests_[leaf].back();
        unseat(guest);
        waiting_.push_back(guest);
    }
    mark(leaf);
}

void Leaves::mark(Place leaf) {
    const std::uint64_t bit = std::uint64_t{1} << (leaf % 64);
    if (load_[leaf] < zones_.capacity(leaf)) {
        room_[leaf / 64] |= bit;
    } else {
        room_[leaf / 64] &= ~bit;
    }
}

void Leaves::seat_guest(Unit t) {
    const Place place = zones_.units[t].at;
    Place leaf = leaf_with_room(place);
    if (leaf == kNowhere) {
        leaf = leaf_with_guest_from_above(place);
        if (leaf == kNowhere) return;  // only while a plan is unfinished
        const auto& guests = guests_[leaf];
        const Unit other = *std::find_if(guests.begin(), guests.end(), [&](Unit guest) {
            return !zones_.forest.contains(place, zones_.units[guest].at);
        });
        unseat(other);
        waiting_.push_back(other);
    }
    seat(t, leaf);
}

Place Leaves::leaf_with_room(Place place) const {
    const auto first = static_cast<std::size_t>(place);
    const auto end = static_cast<std::size_t>(zones_.forest.end(place));
    for (std::size_t word = first / 64; word * 64 < end; ++word) {
        std::uint64_t bits = room_[word];
        if (word == first / 64) bits &= ~std::uint64_t{0} << (first % 64);
        if (bits == 0) continue;
        const auto leaf = word * 64 + static_cast<std::size_t>(std::countr_zero(bits));
        return leaf < end ? static_cast<Place>(leaf) : kNowhere;
    }
    return kNowhere;
}

Place Leaves::leaf_with_guest_from_above(Place place) const {
    for (Place leaf = place; leaf < zones_.forest.end(place); ++leaf) {
        for (const Unit guest : guests_[leaf]) {
            if (!zones_.forest.contains(place, zones_.units[guest].at)) return leaf;
        }
    }
    return kNowhere;
}

void Leaves::renumber(const std::vector<Place>& now) {
    const auto places = static_cast<std::size_t>(zones_.forest.size());
    std::vector<Count> load(places);
    std::vector<std::vector<Unit>> guests(places);
    for (std::size_t v = 0; v < load_.size(); ++v) {
        load[now[v]] = load_[v];
        guests[now[v]] = std::move(guests_[v]);
    }
    load_ = std::move(load);
    guests_ = std::move(guests);
    for (Place& leaf : leaf_) leaf = leaf == kNowhere ? kNowhere : now[leaf];
    for (Place& leaf : changed_) leaf = now[leaf];
    room_.assign(places / 64 + 1, 0);
    for (Place v = 0; v < zones_.forest.size(); ++v) {
        if (zones_.forest.is_leaf(v)) mark(v);
    }
}

}  // namespace headgate::flow::laminar
