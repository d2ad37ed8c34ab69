echo begin
"$PYTHON" alone.py "$1"
