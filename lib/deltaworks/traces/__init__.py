"""Traces of batches for OpenTelemetry: where the time of one batch went, task by task.

- `figures`: what a driver notes of a batch while it runs.
- `tracer`: who takes the figures; `NoTracer` if nobody does.
- `layout`: the spans of a batch, made of its figures when it has ended.
- `options`: the settings, `[traces]`.
- `deliveries`: the queue to the exporter, which never delays a batch.
- `export`: spans in OpenTelemetry's form, over OTLP; the only module that imports OpenTelemetry.

No span has a key, a value, a header or the text of an error, which may quote a record.
"""
