"""Small calls: an owner sends items to slots."""
