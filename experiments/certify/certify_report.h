#pragma once
#include <iosfwd>

#include "experiments/certify/certify.h"

namespace specdec {

/// One line a row, then what was not tested and a summary.
void write_certificate(std::ostream& out, const CertifyResult& result);
/// Writes the results as one JSON object: rows, untested, passed.
void write_certificate_json(std::ostream& out, const CertifyResult& result);

/// The compatibility matrix: which combinations there are, and what each promises or why it is
/// refused. A table a strategy and verifier, those that are alike shown once: drafters in rows,
/// shapes in columns, reasons as numbered footnotes.
void write_matrix(std::ostream& out, const CertifyResult& result);
void write_matrix_json(std::ostream& out, const CertifyResult& result);

}  // namespace specdec
