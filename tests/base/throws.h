// EXPECT_THROWS(statement, Type, "part of the message"): the statement throws exactly this type, and its message has
// that part.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <typeinfo>

#define EXPECT_THROWS(statement, type, part)                                                               \
  do {                                                                                                     \
    try {                                                                                                  \
      statement;                                                                                           \
      ADD_FAILURE() << #statement << " throws nothing";                                                    \
    } catch (const std::exception& error_) {                                                               \
      EXPECT_EQ(typeid(error_).name(), typeid(type).name()) << error_.what();                              \
      EXPECT_NE(std::string(error_.what()).find(part), std::string::npos) << "message: " << error_.what(); \
    }                                                                                                      \
  } while (false)
