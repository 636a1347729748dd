"""SOWbench: the work of a server of current states, through any server that has an adapter.

A workload (W1 to W10) publishes a load that is known record by record, so whatever a client was
sent or a server holds is compared with it (`load`, `hearing`); a figure with a wrong answer is no
figure. An adapter (`adapter`) is one file of six methods. Beside each row stand the floor that the
machine sets (`floors`), what an acknowledgement promised, and what an adapter could not do, with
the reason. Rounds are interleaved, so that all have met the same weather. Rows that we lose come
first. AMPS and Diffusion are left out: their licences forbid such figures.
"""
