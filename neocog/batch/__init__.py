"""Reading many pictures.

From ``neocog read FOLDER`` to a record: `run.Request` checks what is asked for, `run.read_all` joins the
parts, `inputs.find_inputs` finds pictures, `tasks.into_tasks` packs them, `pool.run_tasks` has worker
processes do them. There `tasks.Job.do` calls `neocog.reading.reader.Reader`, which asks the networks of
`pool.Networks`, and gives a `neocog.reading.results.PageReading` its format. `output.Sink` writes it.
"""
