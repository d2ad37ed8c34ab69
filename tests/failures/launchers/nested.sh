make WAY="$1" || exit 3
