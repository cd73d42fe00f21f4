//! Records of batches without compression, read at the speed of the processor's memory.
//!
//! `millrace_protocol` uses this module where it is installed, and does without it where it is not.
//! Nothing here says what is wrong with a record: it is left to the Python decoder, which does.
//! Every function releases what it borrowed when it returns, and reads nothing beyond a buffer.

mod columns;
mod encode;
mod gather;
mod record;
mod varint;

use pyo3::prelude::*;

// The buffers of `gather` rely on the lock of the interpreter.
#[pymodule(gil_used = true)]
fn millrace_native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("VERSION", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(columns::read_records, module)?)?;
    module.add_function(wrap_pyfunction!(encode::encode_columns, module)?)?;
    module.add_function(wrap_pyfunction!(gather::read_fields, module)?)?;
    module.add_function(wrap_pyfunction!(gather::gather, module)?)?;
    Ok(())
}
