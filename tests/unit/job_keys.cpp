// Prints the table of docs/job-spec.md.
#include <iostream>

#include "core/job/table.h"

int main() { std::cout << dtorch::job_keys_markdown(); }
