module remora.local/tools

go 1.24.0
