"""`brobust explore`: a page on loopback whose controls are a scenario, and which looks into datasets.

page.html               the page, with its style and its script; the server puts uPlot and a token's nonce into it
uPlot.iife.min.js, uPlot.min.css, uPlot.LICENSE   uPlot 1.6.32 (MIT) as npm has it: the charts
server.py               who may ask: loopback, the page's own origin, with the token
answers.py              what is answered: a run, a dataset's cells, a run of it, an explanation, a file
figures.py, 2brobust.csv   the papers' figures that a run belongs to, and their cells as we measured them
recorded.py             what is answered of a recording of sockets
"""
